-- The consumers' business. The inbox is beside it: sql/inbox/V1__inbox.up.sql. Nothing here would notice a repeat.
CREATE TABLE invoices (
    order_id bigint  NOT NULL,
    total    numeric NOT NULL
);
