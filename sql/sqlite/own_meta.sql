CREATE TABLE {table} (
  name text NOT NULL,
  value text NOT NULL,
  PRIMARY KEY (name)
)
