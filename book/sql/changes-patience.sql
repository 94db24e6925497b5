SELECT cell, server, printf('%.3f', ratio) AS 'ratio', interval_3 AS 'interval', covers, pairs
FROM intervals
WHERE record = '2026-11-22-second-law' AND (server, baseline) IN (VALUES ('after', 'before'), ('after-epoll',
  'before-epoll'))
ORDER BY server, cell
