// Command producer places orders, each with its event: one transaction makes both or neither. Arguments: how many.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func placeOrder(ctx context.Context, db *pgx.Conn, customer, total int) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `WITH placed AS (INSERT INTO orders (customer, total) VALUES ($1, $2) RETURNING *)
			SELECT outbox.emit('OrderPlaced', 'order', id::text, to_jsonb(placed)) FROM placed`, customer, total)
		if err == nil {
			_, err = tx.Exec(ctx, "UPDATE customers SET credit = credit - $1 WHERE id = $2", total, customer)
		}
		return err
	})
}

func main() {
	db, err := pgx.Connect(context.Background(), os.Getenv("DATABASE_URL"))
	count, _ := strconv.Atoi(os.Args[1])
	for n := 0; n < count && err == nil; n++ {
		var rejected *pgconn.PgError
		err = placeOrder(context.Background(), db, n%10+1, n%7*25)
		if errors.As(err, &rejected) && rejected.ConstraintName == "customers_credit_check" {
			log.Printf("customer %d has no credit for %d: no order, no event", n%10+1, n%7*25)
			err = nil
		}
	}
	if err != nil {
		log.Fatal(err)
	}
}
