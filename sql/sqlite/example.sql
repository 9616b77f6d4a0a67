/* outbill:example */
CREATE TABLE IF NOT EXISTS async_bill (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  biz_type TEXT NOT NULL,
  biz_id TEXT NOT NULL,
  status INTEGER NOT NULL DEFAULT 0,
  payload TEXT DEFAULT NULL,
  retry_count INTEGER NOT NULL DEFAULT 0,
  next_retry_time TEXT DEFAULT NULL,
  finished_at TEXT DEFAULT NULL,
  created_at TEXT DEFAULT CURRENT_TIMESTAMP,
  updated_at TEXT DEFAULT CURRENT_TIMESTAMP,
  UNIQUE (biz_type, biz_id)
);
CREATE INDEX IF NOT EXISTS idx_status_next ON async_bill (status, next_retry_time);
