#!/usr/bin/env python3
"""Places orders for ever, each with its event in one transaction. One in ten is rolled back, and its event with it.

SHOP_RATE is orders a second.
"""

import json
import os
import random
import time

import psycopg
from services import database

EMIT = "SELECT outbox.emit('OrderPlaced', 'order', %s, %s::jsonb)"


def place_order(db, customer, total, note=None):
    """The order and its event exist both or neither; the number of the order."""
    order = db.execute("INSERT INTO orders (customer, total) VALUES (%s, %s) RETURNING id", (customer, total)).fetchone()[0]
    event = {"order": order, "total": total, **({"note": note} if note else {})}
    db.execute(EMIT, (customer, json.dumps(event)))
    return order


def main():
    pause_s = 1 / float(os.environ.get("SHOP_RATE", "2"))
    db, count = database("SHOP"), 0
    print("the shop is open")
    while True:
        count += 1
        try:
            with db.transaction():
                place_order(db, f"customer-{random.randrange(50)}", random.randrange(100, 99999) / 100)
                if count % 10 == 0:
                    raise psycopg.Rollback
        except psycopg.Error as error:
            # Whether it was placed the database alone knows.
            print(f"-- an order failed: {str(error).splitlines()[0]}")
            db.close()
            db = database("SHOP")
        time.sleep(pause_s)


if __name__ == "__main__":
    main()
