SELECT CASE server WHEN 'may' THEN 'may_minihttp' ELSE server END AS 'against',
  CASE cell WHEN 'plaintext' THEN 'plain text, paced' WHEN 'peak' THEN 'plain text, as many as can be' WHEN 'pipeline' THEN 'sixteen pipelined'
    ELSE 'a connection for each, paced' END AS request,
  printf('%.2f', 1 / ratio) AS ratio, printf('%.2f to %.2f', 1 / high, 1 / low) AS interval, covers
FROM intervals
WHERE record = '2026-11-28-engine-beside' AND baseline = 'highwater'
  AND (server, cell) IN (('nginx', 'plaintext'), ('nginx', 'peak'), ('nginx', 'close'), ('may', 'plaintext'), ('may', 'peak'), ('may', 'pipeline'))
ORDER BY server DESC, place
