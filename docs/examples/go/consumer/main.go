// Command consumer writes an invoice for each order, once, although records come again.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	db, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	group := os.Getenv("GROUP")
	kafka, err := kgo.NewClient(kgo.SeedBrokers(os.Getenv("BOOTSTRAP_SERVERS")), kgo.ConsumerGroup(group),
		kgo.ConsumeTopics("order"), kgo.DisableAutoCommit())
	if err != nil {
		log.Fatal(err)
	}
	defer kafka.Close()
	for err == nil {
		fetches := kafka.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		if err = writeInvoices(context.Background(), db, group, fetches); err == nil {
			err = kafka.CommitUncommittedOffsets(context.Background()) // after the database, never before
		}
	}
	log.Print(err)
}
