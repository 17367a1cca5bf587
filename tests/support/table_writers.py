"""Writers that go on while something is done to the pipeline."""

import contextlib
import threading


class Writers:
    """Until stopped, each inserts one row a transaction, of a key of its own; every tenth of them is rolled back."""

    def __init__(self, p, count):
        self.p = p
        self.going = True
        self.threads = [threading.Thread(target=self._write, args=(number,)) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def _write(self, number):
        with contextlib.closing(self.p.postgres.connect(self.p.database, autocommit=False)) as connection:
            with connection.cursor() as cursor:
                n = 0
                while self.going:
                    n += 1
                    cursor.execute("SAVEPOINT s; SELECT outbox.emit('Tested', %s, %s, 'x')", (self.p.name, f"writer-{number}"))
                    connection.rollback() if n % 10 == 0 else connection.commit()

    def stop(self):
        self.going = False
        for thread in self.threads:
            thread.join(60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
