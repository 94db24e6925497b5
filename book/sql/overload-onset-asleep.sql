WITH shares AS (
  SELECT iif(cell LIKE 'kept-%', 'kept', 'one per request') AS connections,
    replace(replace(replace(cell, 'kept-', ''), 'asleep-', ''), 'x', '') AS load,
    replace(replace(server, '-before', ''), '-now', '') AS transport, server LIKE '%-now' AS is_now,
    100.0 * (sent - lost) / sent AS answered, p99_us / 1000 AS p99
  FROM steps WHERE record IN ('2026-11-27-onset-kept', '2026-11-27-onset-shares'))
SELECT now.connections, now.load || 'x' AS 'times the capacity', now.transport,
  printf('%.1f', before.answered * now.load) AS 'before, % of the peak', printf('%.1f', now.answered * now.load) AS 'now, % of the peak',
  printf('%.0f', before.p99) AS 'p99 before, ms', printf('%.0f', now.p99) AS 'p99 now, ms'
FROM shares AS now JOIN shares AS before USING (connections, load, transport)
WHERE now.is_now AND NOT before.is_now ORDER BY now.connections, CAST(now.load AS REAL), now.transport DESC
