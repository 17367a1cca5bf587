"""How long `walpost run` takes from its start to the state streaming, with PostgreSQL and Kafka both up."""

import datetime
import statistics
import time

TIMES = 20
WANTED_S = 0.2


def measure(servers):
    with servers.Workspace("walpost-bench-") as workspace:
        postgres, kafka = workspace.postgres(), workspace.kafka()
        kafka.create_topic("bench", 4)
        walpost = workspace.walpost(conninfo=postgres.conninfo(), bootstrap=kafka.bootstrap, config={"log": {"level": "info"}})
        walpost.init()
        seconds = [one_start(servers, walpost) for _ in range(TIMES + 1)][1:]  # the first warms the caches
        version = postgres.execute("SHOW server_version")[0][0].split()[0]
    return {"times": TIMES, "median_s": statistics.median(seconds), "max_s": max(seconds), "min_s": min(seconds), "postgres": version}


def one_start(servers, walpost):
    """From before the exec to the time that the log's own line of it has."""
    before = len(walpost.log_events())
    begin = time.time()
    walpost.start(wait=None)
    line = servers.wait_for(lambda: streaming(walpost.log_events()[before:]), 60, "the state streaming")
    walpost.stop()
    return datetime.datetime.fromisoformat(line["ts"].replace("Z", "+00:00")).timestamp() - begin


def streaming(lines):
    return next((line for line in lines if line["event"] == "state_changed" and line["state"] == "streaming"), None)


def text(r):
    return (f"from the start of `walpost run` to the state `streaming`, with both sides up: {r['median_s'] * 1000:.0f} ms (median of {r['times']},"
            f" longest {r['max_s'] * 1000:.0f} ms; wanted: below {WANTED_S * 1000:.0f} ms)")
