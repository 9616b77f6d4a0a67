CREATE TABLE async_bill (
  id bigint unsigned NOT NULL AUTO_INCREMENT,
  biz_type varchar(64) NOT NULL,
  biz_id varchar(64) NOT NULL,
  status tinyint NOT NULL DEFAULT 0,
  payload json DEFAULT NULL,
  retry_count int NOT NULL DEFAULT 0,
  next_retry_time datetime DEFAULT NULL,
  finished_at datetime DEFAULT NULL,
  created_at datetime DEFAULT CURRENT_TIMESTAMP,
  updated_at datetime DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (id), UNIQUE KEY uk_biz (biz_type, biz_id), KEY idx_status_next (status, next_retry_time)
);
CREATE TABLE outbill_attempt (
  id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  bill_id varchar(255) NOT NULL,
  bill_type varchar(255) NOT NULL,
  message_id varchar(255) NOT NULL,
  attempt int unsigned NOT NULL,
  attempted_at datetime(6) NOT NULL,
  outcome varchar(16) NOT NULL,
  error_class varchar(64) NULL,
  error varchar(1000) NULL,
  sink varchar(64) NOT NULL,
  route varchar(255) NOT NULL,
  duration_ms int unsigned NOT NULL,
  instance varchar(255) NOT NULL,
  KEY (bill_id), KEY (attempted_at)
);
CREATE TABLE outbill_hold (
  route varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
  class varchar(64) NOT NULL,
  reason varchar(1000) NOT NULL,
  held_at datetime(6) NOT NULL,
  instance varchar(255) NOT NULL
);
