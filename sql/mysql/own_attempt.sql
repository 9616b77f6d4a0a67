CREATE TABLE {table} (
  id bigint unsigned NOT NULL AUTO_INCREMENT,
  bill_id varchar(255) NOT NULL,
  bill_type varchar(255) NOT NULL,
  message_id varchar(255) NOT NULL,
  attempt int unsigned NOT NULL,
  attempted_at datetime(6) NOT NULL,
  outcome varchar(16) NOT NULL,
  error_class varchar(64) DEFAULT NULL,
  error varchar(1000) DEFAULT NULL,
  sink varchar(64) NOT NULL,
  route varchar(255) NOT NULL,
  duration_ms int unsigned NOT NULL,
  instance varchar(255) NOT NULL,
  PRIMARY KEY (id),
  KEY idx_bill (bill_id),
  KEY idx_attempted_at (attempted_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
