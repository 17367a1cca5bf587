import java.math.BigDecimal;
import java.sql.*;

/** Places orders, each with its event: one transaction makes both or neither. Arguments: how many. */
public final class Producer {
  static void placeOrder(Connection db, int customer, BigDecimal total) throws SQLException {
    try (PreparedStatement order = db.prepareStatement("INSERT INTO orders (customer, total) VALUES (?, ?) RETURNING id");
        PreparedStatement emit = db.prepareStatement("SELECT outbox.emit('OrderPlaced', 'order', ?, ?::jsonb)");
        PreparedStatement credit = db.prepareStatement("UPDATE customers SET credit = credit - ? WHERE id = ?")) {
      order.setInt(1, customer);
      order.setBigDecimal(2, total);
      ResultSet made = order.executeQuery();
      made.next();
      emit.setString(1, made.getString("id"));
      emit.setString(2, "{\"customer\": %d, \"total\": %s}".formatted(customer, total));
      emit.execute();
      credit.setBigDecimal(1, total);
      credit.setInt(2, customer);
      credit.executeUpdate();
      db.commit();
    } catch (SQLException failed) {
      db.rollback();
      throw failed;
    }
  }

  public static void main(String[] arguments) throws SQLException {
    try (Connection db = DriverManager.getConnection(System.getenv("DATABASE_URL"))) {
      db.setAutoCommit(false);
      for (int n = 0; n < Integer.parseInt(arguments[0]); n++) {
        try {
          placeOrder(db, n % 10 + 1, BigDecimal.valueOf(n % 7 * 25));
        } catch (SQLException rejected) {
          if (!rejected.getSQLState().equals("23514")) throw rejected; // check_violation
          System.out.printf("customer %d has no credit for %d: no order, no event%n", n % 10 + 1, n % 7 * 25);
        }
      }
    }
  }
}
