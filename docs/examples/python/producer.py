"""Places orders, each with its event: one transaction makes both or neither. Arguments: how many."""

import json
import os
import secrets
import sys

import psycopg


def place_order(db, customer, total):
    with db.transaction():
        trace = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"  # of the request, where there is tracing
        db.execute("SELECT set_config('outbox.traceparent', %s, true)", (trace,))
        order = db.execute("INSERT INTO orders (customer, total) VALUES (%s, %s) RETURNING id", (customer, total)).fetchone()[0]
        payload = json.dumps({"customer": customer, "total": total})
        db.execute("SELECT outbox.emit('OrderPlaced', 'order', %s, %s::jsonb)", (str(order), payload))
        db.execute("UPDATE customers SET credit = credit - %s WHERE id = %s", (total, customer))


def main():
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as db:
        for n in range(int(sys.argv[1])):
            try:
                place_order(db, customer=n % 10 + 1, total=n % 7 * 25)
            except psycopg.errors.CheckViolation:
                print(f"customer {n % 10 + 1} has no credit for {n % 7 * 25}: no order, no event")


if __name__ == "__main__":
    main()
