WITH m AS (SELECT server, cell, min(server_rss_kib) AS kib
    FROM rows
    WHERE record = '2026-11-22-memory' AND status = 'ok' GROUP BY server, cell)
SELECT a.server, printf('%.2f', (b.kib - a.kib) / 4000) AS 'KiB per connection', printf('%,d', a.kib) AS
  'the process with one, KiB'
FROM m a
JOIN m b ON a.server = b.server
WHERE a.cell = '1' AND b.cell = '4000'
ORDER BY (b.kib - a.kib)
