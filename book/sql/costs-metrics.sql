SELECT cell, server AS 'metrics', printf('%.2f', s.server_cpu_us_per_request) AS 'CPU µs',
  iif(ratio IS NULL, '–', printf('%.2f', ratio)) AS 'ratio', coalesce(interval_2, '–') AS 'interval', coalesce(covers, '–') AS 'covers'
FROM summaries AS s LEFT JOIN intervals USING (record, cell, server)
WHERE record = '2026-11-23-metrics'
ORDER BY s.rowid
