PRAGMA journal_mode = WAL;
CREATE TABLE async_bill (
  id integer PRIMARY KEY AUTOINCREMENT,
  biz_type text NOT NULL,
  biz_id text NOT NULL,
  status integer NOT NULL DEFAULT 0,
  payload text,
  retry_count integer NOT NULL DEFAULT 0,
  next_retry_time text,
  finished_at text,
  created_at text DEFAULT CURRENT_TIMESTAMP,
  UNIQUE (biz_type, biz_id)
);
CREATE INDEX idx_status_next ON async_bill (status, next_retry_time);
CREATE TABLE outbill_attempt (
  id integer PRIMARY KEY AUTOINCREMENT, bill_id text NOT NULL, bill_type text NOT NULL, message_id text NOT NULL,
  attempt integer NOT NULL, attempted_at text NOT NULL, outcome text NOT NULL, error_class text, error text,
  sink text NOT NULL, route text NOT NULL, duration_ms integer NOT NULL, instance text NOT NULL
);
CREATE TABLE outbill_hold (
  route text NOT NULL PRIMARY KEY, class text NOT NULL, reason text NOT NULL, held_at text NOT NULL, instance text NOT NULL
);
