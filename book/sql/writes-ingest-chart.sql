SELECT substr(server, 1, instr(server, '-') - 1) AS 'acknowledged', server_cpu_us_per_request AS 'CPU µs',
  substr(server, instr(server, '-') + 1) AS driver
FROM summaries
WHERE record = '2026-11-22-ingest'
ORDER BY CASE substr(server, 1, 4) WHEN 'noth' THEN 1 WHEN 'null' THEN 2 WHEN 'memo' THEN 3 ELSE 4 END
