// Places orders, each with its event: one transaction makes both or neither. Arguments: how many.
import { randomBytes } from "node:crypto";
import pg from "pg";

const CHECK_VIOLATION = "23514";

async function placeOrder(db, customer, total) {
  await db.query("BEGIN");
  try {
    const trace = `00-${randomBytes(16).toString("hex")}-${randomBytes(8).toString("hex")}-01`; // of the request
    await db.query("SELECT set_config('outbox.traceparent', $1, true)", [trace]);
    const made = await db.query("INSERT INTO orders (customer, total) VALUES ($1, $2) RETURNING id", [customer, total]);
    await db.query("SELECT outbox.emit('OrderPlaced', 'order', $1, $2::jsonb)", [made.rows[0].id, { customer, total }]);
    await db.query("UPDATE customers SET credit = credit - $1 WHERE id = $2", [total, customer]);
    await db.query("COMMIT");
  } catch (error) {
    await db.query("ROLLBACK");
    throw error;
  }
}

const db = new pg.Client(process.env.DATABASE_URL);
await db.connect();
for (let n = 0; n < Number(process.argv[2]); n++) {
  const [customer, total] = [(n % 10) + 1, (n % 7) * 25];
  try {
    await placeOrder(db, customer, total);
  } catch (error) {
    if (error.code !== CHECK_VIOLATION) throw error;
    console.log(`customer ${customer} has no credit for ${total}: no order, no event`);
  }
}
await db.end();
