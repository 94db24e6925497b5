WITH searches(cell, at, name) AS (VALUES ('nothing', 1, 'nothing found, 45 bytes'), ('day', 2, 'a day, 2 KB'),
    ('day-paced', 3, 'a day, 50 000 requests per second'), ('changing', 4, 'a day, while an event changes ten times per second'),
    ('year', 5, 'a year, 0.7 MB'), ('everything', 6, 'everything, 2 MB'))
SELECT name AS 'search', printf('%.2f', server_cpu_us_per_request) AS 'CPU µs', printf('%,d', rps) AS 'requests per second',
  printf('%.2f', ratio) AS 'of the plain handler', interval_2 AS 'interval', covers, verdict
FROM summaries AS s JOIN searches USING (cell) JOIN intervals USING (record, cell, server)
WHERE record = '2026-11-23-search'
ORDER BY at
