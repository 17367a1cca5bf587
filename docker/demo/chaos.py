#!/usr/bin/env python3
"""Kills, freezes and unplugs PostgreSQL, Kafka and walpost one after the other, and keeps the account all the while.

CHAOS_MINUTES: after so long everything is fixed, the last account drawn up, and the end is 0 when nothing is lost, invented or billed twice; 0 is
for ever. CHAOS_SEED plays the same faults again.
"""

import os
import random
import sys
import time

import psycopg
from account import Account, fair, text
from confluent_kafka import KafkaException
from engine import Engine

# (what is done, what fixes it), and how it is called.
FAULTS = {
    "killed": ("kill", "start"),
    "stopped": ("stop", "start"),
    "frozen": ("pause", "unpause"),
    "unplugged": (None, None),
}
VICTIMS = ("walpost", "kafka", "postgres", "walpost-standby")
QUIET_S, FAULT_S = (4, 10), (1, 12)
LAST_ACCOUNT_S = 180
TROUBLE = (psycopg.Error, KafkaException, OSError)


class Chaos:
    def __init__(self, seed):
        self._random = random.Random(seed)
        self._engine = Engine()
        self._victims = [name for name in VICTIMS if self._engine.container(name)]
        self.count = 0
        self.now = None  # (victim, fault)
        self._next = time.monotonic() + 5

    def turn(self):
        """Begins or fixes a fault when its time has come."""
        if time.monotonic() < self._next:
            return
        if self.now:
            self.fix()
        else:
            self._begin()

    def _begin(self):
        self.now = self._random.choice(self._victims), self._random.choice(list(FAULTS))
        seconds = self._random.uniform(*FAULT_S)
        self.count += 1
        say(f"{self.now[0]} is {self.now[1]} for {seconds:.0f} s")
        self._next = time.monotonic() + seconds
        victim, fault = self.now
        if fault == "unplugged":
            self._engine.unplug(victim)
        else:
            self._engine.act(victim, FAULTS[fault][0])

    def fix(self):
        if self.now:
            victim, fault = self.now
            if fault == "unplugged":
                self._engine.plug_in(victim)
            else:
                self._engine.act(victim, FAULTS[fault][1])
            self.now = None
            self._next = time.monotonic() + self._random.uniform(*QUIET_S)


def say(line):
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


class Books:
    """The account, also while what it asks is away. Everything it asks has a time-out."""

    def __init__(self):
        self._account = Account()
        self.figures = None

    def turn(self):
        """True when there are new figures."""
        try:
            if not self._account.turn():
                return False
            self.figures = self._account.figures()
            return True
        except TROUBLE:
            return False

    def reconnect(self):
        self._account.reconnect()


def last_account(books):
    """Two turns: the first may have been noted before the last fault was fixed."""
    books.reconnect()
    deadline, turns = time.monotonic() + LAST_ACCOUNT_S, 0
    while turns < 2 and time.monotonic() < deadline:
        if books.turn():
            turns += 1
        time.sleep(0.5)
    return turns == 2


def main():
    minutes = float(os.environ.get("CHAOS_MINUTES") or 0)
    seed = os.environ.get("CHAOS_SEED") or str(random.randrange(10**6))
    chaos, books = Chaos(seed), Books()
    say(f"chaos of seed {seed}" + (f", {minutes:g} minutes" if minutes else ""))
    begin = time.monotonic()
    while not minutes or time.monotonic() < begin + minutes * 60:
        was = chaos.now
        chaos.turn()
        if was and not chaos.now:
            books.reconnect()
        if not (chaos.now and chaos.now[0] in ("kafka", "postgres")) and books.turn():
            say(f"faults {chaos.count}  {text(books.figures)}")
        time.sleep(1)
    chaos.fix()
    done = last_account(books)
    say(f"the end: faults {chaos.count}  {text(books.figures)}")
    if not done:
        say(f"within {LAST_ACCOUNT_S} s walpost has not confirmed what was committed")
    good = done and fair(books.figures)
    say("balanced: nothing lost, nothing invented" if good else "NOT BALANCED")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
