-- tables
CREATE TABLE events (
  kind INT,
  person ROW<id BIGINT, name STRING, email STRING, card STRING, city STRING, state STRING, at TIMESTAMP(3), extra STRING>,
  auction ROW<id BIGINT, item STRING, description STRING, first_bid BIGINT, reserve BIGINT, at TIMESTAMP(3),
    expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING>,
  bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, at TIMESTAMP(3), extra STRING>,
  at AS CASE kind WHEN 0 THEN person.at WHEN 1 THEN auction.at ELSE bid.at END,
  WATERMARK FOR at AS at - INTERVAL '4' SECOND
) WITH ('connector' = 'datagen');
CREATE TABLE side (id BIGINT, label STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'jdbc');
CREATE VIEW person AS SELECT person.id, person.name, person.email, person.card, person.city, person.state, at, person.extra
  FROM events WHERE kind = 0;
CREATE VIEW auction AS SELECT auction.id, auction.item, auction.description, auction.first_bid, auction.reserve, at,
  auction.expires, auction.seller, auction.category, auction.extra FROM events WHERE kind = 1;
CREATE VIEW bid AS SELECT bid.auction, bid.bidder, bid.price, bid.channel, bid.url, at, bid.extra
  FROM events WHERE kind = 2

-- q0: as it is
SELECT auction, bidder, price, at, extra FROM bid

-- q1: prices in euros
SELECT auction, bidder, 0.908 * price AS euros, at, extra FROM bid

-- q2: bids for some auctions
SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0

-- q3: who sells in three states
SELECT p.name, p.city, p.state, a.id FROM auction AS a INNER JOIN person AS p ON a.seller = p.id
WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')

-- q4: mean price of a category
SELECT category, AVG(best) FROM (
  SELECT MAX(b.price) AS best, a.category FROM auction a, bid b
  WHERE a.id = b.auction AND b.at BETWEEN a.at AND a.expires GROUP BY a.id, a.category)
GROUP BY category

-- q5: auctions with most bids
SELECT c.auction, c.n FROM (
  SELECT auction, COUNT(*) AS n, window_start AS ws, window_end AS we
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(at), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY auction, window_start, window_end) AS c
JOIN (
  SELECT MAX(n) AS most, ws, we FROM (
    SELECT COUNT(*) AS n, window_start AS ws, window_end AS we
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(at), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end)
  GROUP BY ws, we) AS m
ON c.ws = m.ws AND c.we = m.we AND c.n >= m.most

-- q6: mean price of a seller's last auctions
SELECT seller, AVG(price) OVER (PARTITION BY seller ORDER BY at ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY id, seller ORDER BY price DESC) AS place FROM (
    SELECT a.id, a.seller, b.price, b.at FROM auction AS a, bid AS b
    WHERE a.id = b.auction AND b.at BETWEEN a.at AND a.expires))
WHERE place <= 1

-- q7: highest bid
SELECT b.auction, b.price, b.bidder, b.at, b.extra FROM bid b JOIN (
  SELECT MAX(price) AS best, window_end AS we FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(at), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end) AS m
ON b.price = m.best WHERE b.at BETWEEN m.we - INTERVAL '10' SECOND AND m.we

-- q8: who is new and sells
SELECT p.id, p.name, p.ws FROM (
  SELECT id, name, window_start AS ws, window_end AS we
  FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY id, name, window_start, window_end) p
JOIN (
  SELECT seller, window_start AS ws, window_end AS we
  FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY seller, window_start, window_end) a
ON p.id = a.seller AND p.ws = a.ws AND p.we = a.we

-- q9: winning bids
SELECT id, item, seller, auction, bidder, price, bid_at FROM (
  SELECT a.*, b.auction, b.bidder, b.price, b.at AS bid_at,
    ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.at ASC) AS place
  FROM auction a, bid b WHERE a.id = b.auction AND b.at BETWEEN a.at AND a.expires)
WHERE place <= 1

-- q10: by day and minute
SELECT auction, bidder, price, at, extra, DATE_FORMAT(at, 'yyyy-MM-dd'), DATE_FORMAT(at, 'HH:mm') FROM bid

-- q11: bids of a session
SELECT bidder, COUNT(*), window_start, window_end
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(at), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end

-- q12: bids of a window by the clock
SELECT bidder, COUNT(*), window_start, window_end
FROM TABLE(TUMBLE((SELECT *, PROCTIME() AS pt FROM bid), DESCRIPTOR(pt), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end

-- q13: looked up
SELECT b.auction, b.bidder, b.price, b.at, s.label
FROM (SELECT *, PROCTIME() AS pt FROM bid) b JOIN side FOR SYSTEM_TIME AS OF b.pt AS s ON MOD(b.auction, 10000) = s.id

-- q14: computed
SELECT auction, bidder, 0.908 * price AS euros,
  CASE WHEN HOUR(at) >= 8 AND HOUR(at) <= 18 THEN 'day' WHEN HOUR(at) <= 6 OR HOUR(at) >= 20 THEN 'night' ELSE 'other' END,
  at, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c
FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000

-- q15: statistics of a day
SELECT DATE_FORMAT(at, 'yyyy-MM-dd') AS `day`, COUNT(*), COUNT(*) FILTER (WHERE price < 10000),
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000), COUNT(*) FILTER (WHERE price >= 1000000),
  COUNT(DISTINCT bidder), COUNT(DISTINCT bidder) FILTER (WHERE price < 10000),
  COUNT(DISTINCT auction), COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000)
FROM bid GROUP BY DATE_FORMAT(at, 'yyyy-MM-dd')

-- q16: statistics of a channel
SELECT channel, DATE_FORMAT(at, 'yyyy-MM-dd') AS `day`, MAX(DATE_FORMAT(at, 'HH:mm')) AS `minute`, COUNT(*),
  COUNT(*) FILTER (WHERE price < 10000), COUNT(DISTINCT bidder),
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000), COUNT(DISTINCT auction)
FROM bid GROUP BY channel, DATE_FORMAT(at, 'yyyy-MM-dd')

-- q17: statistics of an auction
SELECT auction, DATE_FORMAT(at, 'yyyy-MM-dd') AS `day`, COUNT(*), COUNT(*) FILTER (WHERE price < 10000),
  MIN(price), MAX(price), AVG(price), SUM(price)
FROM bid GROUP BY auction, DATE_FORMAT(at, 'yyyy-MM-dd')

-- q18: a bidder's last bid
SELECT auction, bidder, price, channel, url, at, extra FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY at DESC) AS place FROM bid)
WHERE place <= 1

-- q19: ten highest bids
SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid) WHERE place <= 10

-- q20: bids with their auction
SELECT auction, bidder, price, channel, url, b.at, b.extra, item, description, first_bid, reserve, a.at, expires, seller,
  category, a.extra
FROM bid AS b INNER JOIN auction AS a ON b.auction = a.id WHERE a.category = 10

-- q21: number of a channel
SELECT auction, bidder, price, channel, CASE WHEN LOWER(channel) = 'apple' THEN '0' WHEN LOWER(channel) = 'google' THEN '1'
  ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bid
WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL OR LOWER(channel) IN ('apple', 'google')

-- q22: parts of an address
SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2,
  SPLIT_INDEX(url, '/', 5) AS dir3
FROM bid
