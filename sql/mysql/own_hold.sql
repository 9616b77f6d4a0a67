CREATE TABLE {table} (
  route varchar(255) NOT NULL,
  class varchar(64) NOT NULL,
  reason varchar(1000) NOT NULL,
  held_at datetime(6) NOT NULL,
  instance varchar(255) NOT NULL,
  PRIMARY KEY (route)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
