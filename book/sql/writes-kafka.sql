SELECT CASE server WHEN 'sink' THEN 'the sink, ' || cell || ' bytes per record' ELSE 'the gateway, POST /' || cell END
  AS 'what', printf('%.2f', ratio) AS 'ratio', interval_2 AS 'interval', covers, pairs
FROM intervals
WHERE record = '2026-11-22-kafka'
ORDER BY server DESC, cell
