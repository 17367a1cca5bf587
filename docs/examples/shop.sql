-- The producers' business. The outbox is beside it: walpost init.
CREATE TABLE customers (
    id     integer PRIMARY KEY,
    credit numeric NOT NULL CHECK (credit >= 0)
);
CREATE TABLE orders (
    id       bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer integer NOT NULL REFERENCES customers,
    total    numeric NOT NULL
);
INSERT INTO customers SELECT n, 300 FROM generate_series(1, 10) n;
