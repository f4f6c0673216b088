-- the tables of examples/recipes/kafka_to_postgres.py
CREATE TABLE IF NOT EXISTS turnover (
    minute timestamp, product text, orders bigint, cents bigint,
    PRIMARY KEY (minute, product) -- what the upserts go by
);
CREATE TABLE IF NOT EXISTS rejects (problem text);
