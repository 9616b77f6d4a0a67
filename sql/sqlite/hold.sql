/* outbill:hold */
INSERT OR IGNORE INTO {hold_table} (route, class, reason, instance, held_at) VALUES (?, ?, ?, ?, strftime('%Y-%m-%d %H:%M:%f', 'now'))
