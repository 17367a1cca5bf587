#!/usr/bin/env python3
"""Places one order: place-order.py CUSTOMER TOTAL [KILOBYTES of a note]"""

import sys

from services import database
from shop import place_order


def main():
    customer, total, *kilobytes = sys.argv[1:]
    note = "x" * (int(kilobytes[0]) * 1000) if kilobytes else None
    with database("SHOP") as db, db.transaction():
        order = place_order(db, customer, float(total), note)
    print(f"order {order} is placed")


main()
