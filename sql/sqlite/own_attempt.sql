CREATE TABLE {table} (
  id integer PRIMARY KEY AUTOINCREMENT,
  bill_id text NOT NULL,
  bill_type text NOT NULL,
  message_id text NOT NULL,
  attempt integer NOT NULL,
  attempted_at text NOT NULL,
  outcome text NOT NULL,
  error_class text DEFAULT NULL,
  error text DEFAULT NULL,
  sink text NOT NULL,
  route text NOT NULL,
  duration_ms integer NOT NULL,
  instance text NOT NULL
)
