package main

import (
	"context"

	"example/walpostv1" // protoc --go_out

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"
)

// Inbox and invoices are one transaction.
func writeInvoices(ctx context.Context, db *pgx.Conn, group string, fetches kgo.Fetches) error {
	if err := fetches.Err(); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for _, record := range fetches.Records() {
			event, first := &walpostv1.Envelope{}, false
			if err := proto.Unmarshal(record.Value, event); err != nil {
				return err
			}
			if err := tx.QueryRow(ctx, "SELECT inbox.accept($1, $2::text)", group, event.Id).Scan(&first); err != nil {
				return err
			}
			if !first || event.Type != "OrderPlaced" {
				continue
			}
			_, err := tx.Exec(ctx, "INSERT INTO invoices (order_id, total) VALUES ($1::text::bigint, ($2::jsonb ->> 'total')::numeric)",
				event.GetAggregateId(), event.Payload)
			if err != nil {
				return err
			}
		}
		return nil
	})
}
