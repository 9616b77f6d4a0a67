/* outbill:log_attempts */
INSERT INTO {attempt_table}
  (bill_id, bill_type, message_id, attempt, outcome, error_class, error, sink, route, duration_ms, instance, attempted_at)
VALUES {rows}
