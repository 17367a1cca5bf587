"""Harmless edits of tables and publication, one after the other, round and round, while others write."""

import psycopg2
from edits import ANEW, HARMLESS, LONG
from servers import wait_for

EDIT_S_MAX = 120
# What a statement meets that was done already: exists, does not exist.
DONE = {"42710", "42P07", "42701", "42704", "42P01", "42703"}


class Migrations:
    """`name`: of database and publication. One thread at a time."""

    def __init__(self, postgres, name, tables):
        self._postgres, self._name, self._tables = postgres, name, ", ".join(tables)
        self._left = []

    def next(self):
        """Makes the next one, and returns its name."""
        if not self._left:
            self._make(ANEW)
            self._left = [name for name in HARMLESS if name not in LONG]
        name = self._left.pop(0)
        self._make(HARMLESS[name])
        return name

    def _make(self, sql):
        for statement in filter(None, sql.format(name=self._name, tables=self._tables).split(";")):  # VACUUM takes no company
            attempt = _Attempt(self._postgres, self._name, statement)
            wait_for(attempt.made, EDIT_S_MAX, f"{statement} to be done", every=0.2)


class _Attempt:
    def __init__(self, postgres, database, statement):
        self._postgres, self._database, self._statement = postgres, database, statement
        self._in_doubt = False  # the server went away meanwhile, and may have done it

    def made(self):
        try:
            connection = self._postgres.connect(self._database, options="'-c lock_timeout=1s'")
        except psycopg2.OperationalError:
            return False
        try:
            with connection.cursor() as cursor:
                cursor.execute(self._statement)
            return True
        except psycopg2.Error as error:
            if self._in_doubt and error.pgcode in DONE:
                return True
            if not isinstance(error, (psycopg2.OperationalError, psycopg2.InterfaceError)):
                raise
            self._in_doubt = self._in_doubt or error.pgcode is None
            return False
        finally:
            connection.close()
