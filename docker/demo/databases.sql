-- Two services with a database each: the shop, whose outbox `walpost init` makes beside its orders, and billing with its inbox.
\set password `cat /run/secrets/password`
CREATE ROLE shop LOGIN PASSWORD :'password';
CREATE ROLE billing LOGIN PASSWORD :'password';
-- Made here so that they have a password and a member; `walpost init --with-roles` gives them their rights. It takes roles that are
-- there only from who has granted outbox_owner to itself.
CREATE ROLE outbox_owner;
GRANT outbox_owner TO CURRENT_USER;
CREATE ROLE outbox_relay LOGIN PASSWORD :'password';
CREATE ROLE outbox_writer;
GRANT outbox_writer TO shop;
CREATE DATABASE billing OWNER billing;

CREATE TABLE orders (
    id       bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text    NOT NULL,
    total    numeric NOT NULL
);
GRANT SELECT, INSERT ON orders TO shop;

\connect billing
SET ROLE billing;
\i /demo/inbox.sql
-- Nothing here would notice a repeat.
CREATE TABLE invoices (
    order_id bigint  NOT NULL,
    total    numeric NOT NULL
);
