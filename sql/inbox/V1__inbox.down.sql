-- Takes the inbox away again, with all that it remembers: records that come again are then new.

DROP FUNCTION IF EXISTS
    inbox.accept(text, text), inbox.accept(text, uuid), inbox.accept_position(text, text, text, text),
    inbox.maintain(interval, interval, integer), inbox.drop_partitions(date, timestamptz), inbox.make_partitions(date, date),
    inbox.partitions(), inbox.day_of(text);
DROP TABLE IF EXISTS inbox.processed_events, inbox.position;
DROP SCHEMA IF EXISTS inbox;
