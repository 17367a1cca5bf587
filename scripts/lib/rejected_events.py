"""How fast events are while the broker rejects some: the slow way that finds the guilty ones."""

import time

import rejecting
import servers


def measure(partitions):
    """One event in a hundred is rejected by the broker, and by nobody before it."""
    result = {"events": 100_000, "rejected": 1_000}
    with servers.Workspace("walpost-bench-") as workspace:
        postgres, kafka = workspace.postgres(settings={"max_wal_size": "8GB"}), workspace.kafka(settings=rejecting.ACLS)
        kafka.create_topic("outbox.event.bench", partitions, {"cleanup.policy": "compact"})
        rejecting.permit(kafka, "outbox.event.bench", "Describe", "Write")  # walpost cannot read that it is compacted
        postgres.execute(rejecting.TABLE)
        walpost = workspace.walpost(conninfo=postgres.conninfo(), bootstrap=kafka.bootstrap, config={
            "log": {"level": "info"}, "outboxes": [{"table": "public.outbox", "preset": "debezium"}],
            "delivery": {"on_undeliverable": "dead_letter"}})
        walpost.init()
        postgres.execute(rejecting.INSERT, "bench", 100, 1, result["events"])
        begin = time.monotonic()
        walpost.start()

        def settled():
            events = walpost.status()["events"]
            return events["delivered"] + events["dead_lettered"] >= result["events"]

        servers.wait_for(settled, 900, "every event to be delivered or dead-lettered")
        result["seconds"] = time.monotonic() - begin
        result["dead_lettered"] = walpost.status()["events"]["dead_lettered"]
        result["producers"] = walpost.status()["sink"]["producer_sessions"]
        walpost.stop()
    return result
