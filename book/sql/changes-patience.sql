SELECT cell, server, printf('%.3f', ratio) AS 'ratio', printf('%.3f to %.3f', low, high) AS '95 %', pairs
FROM comparisons
WHERE record = '2026-11-22-second-law' AND (server, baseline) IN (VALUES ('after', 'before'), ('after-epoll',
  'before-epoll'))
ORDER BY server, cell
