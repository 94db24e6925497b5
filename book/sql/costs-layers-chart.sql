SELECT server AS 'layers', server_cpu_us_per_request AS 'CPU µs'
FROM summaries
WHERE record = '2026-11-22-layers' AND cell = 'pipeline'
ORDER BY CASE server WHEN 'text' THEN 0 ELSE 1 END, server DESC
