SELECT cell AS 'connections', s.server AS 'way', printf('%,d', s.rps) AS 'requests per second', printf('%.0f', s.p50_us) AS 'p50, µs',
  iif(ratio IS NULL, '–', printf('%.2f', ratio)) AS 'of loopback', coalesce(interval_2, '–') AS 'interval', coalesce(covers, '–') AS 'covers',
  (SELECT printf('%.1f', p.cpu_us_per_request) FROM parts AS p WHERE p.record = s.record AND p.cell = s.cell
    AND p.server = s.server ORDER BY busy DESC LIMIT 1) AS 'server CPU µs'
FROM summaries AS s LEFT JOIN intervals USING (record, cell, server)
WHERE record = '2026-11-23-bridge'
ORDER BY s.rowid
