CREATE TABLE {table} (
  route text NOT NULL,
  class text NOT NULL,
  reason text NOT NULL,
  held_at text NOT NULL,
  instance text NOT NULL,
  PRIMARY KEY (route)
)
