-- tables
CREATE TABLE events (
  kind INT,
  person ROW<id BIGINT, name STRING, email STRING, card STRING, city STRING, state STRING, ts TIMESTAMP(3),
    extra STRING>,
  auction ROW<id BIGINT, item STRING, description STRING, first_bid BIGINT, reserve BIGINT, ts TIMESTAMP(3),
    expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING>,
  bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, ts TIMESTAMP(3), extra STRING>,
  ts AS CASE kind WHEN 0 THEN person.ts WHEN 1 THEN auction.ts ELSE bid.ts END,
  WATERMARK FOR ts AS ts - INTERVAL '4' SECOND
) WITH ('connector' = 'nx', 'events' = '$N');
CREATE VIEW person AS SELECT person.id AS id, person.name AS name, person.email AS email, person.card AS card,
  person.city AS city, person.state AS state, ts, person.extra AS extra
FROM events WHERE kind = 0;
CREATE VIEW auction AS SELECT auction.id AS id, auction.item AS item, auction.description AS description,
  auction.first_bid AS first_bid, auction.reserve AS reserve, ts, auction.expires AS expires,
  auction.seller AS seller, auction.category AS category, auction.extra AS extra
FROM events WHERE kind = 1;
CREATE VIEW bid AS SELECT bid.auction AS auction, bid.bidder AS bidder, bid.price AS price, bid.channel AS channel,
  bid.url AS url, ts, bid.extra AS extra
FROM events WHERE kind = 2

-- q0
SELECT auction, bidder, price, ts, extra FROM bid

-- q1
SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS euros, ts, extra FROM bid

-- q2
SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0

-- q3
SELECT p.name, p.city, p.state, a.id FROM auction AS a INNER JOIN person AS p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')

-- q4
SELECT category, AVG(best) AS mean FROM (
  SELECT MAX(b.price) AS best, a.id AS id, a.category AS category FROM auction AS a JOIN bid AS b
  ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires GROUP BY a.id, a.category)
GROUP BY category

-- q5
SELECT c.auction, c.n FROM (
  SELECT auction, COUNT(*) AS n, window_start AS ws, window_end AS we
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY auction, window_start, window_end) AS c
JOIN (
  SELECT MAX(n) AS most, ws, we FROM (
    SELECT COUNT(*) AS n, window_start AS ws, window_end AS we
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end)
  GROUP BY ws, we) AS m
ON c.ws = m.ws AND c.we = m.we AND c.n >= m.most

-- q7
SELECT b.auction, b.price, b.bidder, b.ts, b.extra FROM bid AS b JOIN (
  SELECT MAX(price) AS best, window_end AS we FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end) AS m
ON b.price = m.best WHERE b.ts BETWEEN m.we - INTERVAL '10' SECOND AND m.we

-- q8
SELECT p.id, p.name, p.ws FROM (
  SELECT id, name, window_start AS ws, window_end AS we
  FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(ts), INTERVAL '10' SECOND))
  GROUP BY id, name, window_start, window_end) AS p
JOIN (
  SELECT seller, window_start AS ws, window_end AS we
  FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(ts), INTERVAL '10' SECOND))
  GROUP BY seller, window_start, window_end) AS a
ON p.id = a.seller AND p.ws = a.ws AND p.we = a.we

-- q9
SELECT id, item, description, first_bid, reserve, ts, expires, seller, category, extra, auction, bidder, price,
  bid_ts, bid_extra
FROM (
  SELECT a.*, b.auction AS auction, b.bidder AS bidder, b.price AS price, b.ts AS bid_ts, b.extra AS bid_extra,
    ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.ts ASC) AS place
  FROM auction AS a JOIN bid AS b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires)
WHERE place <= 1

-- q11
SELECT bidder, COUNT(*) AS n, window_start AS ws, window_end AS we
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end

-- q15
SELECT DATE_FORMAT(ts, 'yyyy-MM-dd') AS `day`, COUNT(*) AS bids, COUNT(*) FILTER (WHERE price < 10000) AS low,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle,
  COUNT(*) FILTER (WHERE price >= 1000000) AS high,
  COUNT(DISTINCT bidder) AS bidders, COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS low_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS high_bidders,
  COUNT(DISTINCT auction) AS auctions, COUNT(DISTINCT auction) FILTER (WHERE price < 10000) AS low_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS high_auctions
FROM bid GROUP BY DATE_FORMAT(ts, 'yyyy-MM-dd')

-- q16
SELECT channel, DATE_FORMAT(ts, 'yyyy-MM-dd') AS `day`, MAX(DATE_FORMAT(ts, 'HH:mm')) AS `minute`, COUNT(*) AS bids,
  COUNT(*) FILTER (WHERE price < 10000) AS low,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle,
  COUNT(*) FILTER (WHERE price >= 1000000) AS high,
  COUNT(DISTINCT bidder) AS bidders, COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS low_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS high_bidders,
  COUNT(DISTINCT auction) AS auctions, COUNT(DISTINCT auction) FILTER (WHERE price < 10000) AS low_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS high_auctions
FROM bid GROUP BY channel, DATE_FORMAT(ts, 'yyyy-MM-dd')

-- q17
SELECT auction, DATE_FORMAT(ts, 'yyyy-MM-dd') AS `day`, COUNT(*) AS bids,
  COUNT(*) FILTER (WHERE price < 10000) AS low,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle,
  COUNT(*) FILTER (WHERE price >= 1000000) AS high,
  MIN(price) AS lowest, MAX(price) AS highest, AVG(price) AS mean, SUM(price) AS total
FROM bid GROUP BY auction, DATE_FORMAT(ts, 'yyyy-MM-dd')

-- q18
SELECT auction, bidder, price, channel, url, ts, extra FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY ts DESC) AS place FROM bid)
WHERE place <= 1

-- q19
SELECT auction, bidder, price, channel, url, ts, extra, place FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid)
WHERE place <= 10

-- q20
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.ts AS bid_ts, b.extra AS bid_extra, a.item, a.description,
  a.first_bid, a.reserve, a.ts AS auction_ts, a.expires, a.seller, a.category, a.extra
FROM bid AS b INNER JOIN auction AS a ON b.auction = a.id WHERE a.category = 10
