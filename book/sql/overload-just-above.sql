SELECT CAST(at_s AS INTEGER) AS 'second', avg(value) AS 'in time', iif(record LIKE '%before', 'before', 'now') AS
  'version'
FROM series
WHERE record IN ('2026-11-22-scaling', '2026-11-22-scaling-before') AND cell = '1x' AND name = 'goodput_per_s'
GROUP BY record, CAST(at_s AS INTEGER)
ORDER BY 1
