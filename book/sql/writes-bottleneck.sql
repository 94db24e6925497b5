SELECT cell AS 'connections and requests at once', s.server AS 'client and way', printf('%,d', rps) AS
  'requests per second', CASE WHEN p99_us > 0 THEN printf('%.1f', p99_us / 1000) END AS 'p99, ms', (SELECT group_concat(part || ' ' ||
  printf('%.0f %%', busy * 100), ', ') FROM parts AS p WHERE p.record = s.record AND p.cell = s.cell AND p.server =
  s.server AND busy >= 0.01) AS 'CPU meanwhile'
FROM summaries AS s
WHERE record = '2026-11-27-todos-full'
ORDER BY s.rowid
