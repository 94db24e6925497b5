SELECT CASE server WHEN 'sink' THEN 'the sink, ' || cell || ' bytes a record' ELSE 'the gateway, POST /' || cell END
  AS 'what', printf('%.2f', ratio) AS 'ratio', printf('%.2f to %.2f', low, high) AS '95 %', pairs
FROM comparisons
WHERE record = '2026-11-22-kafka'
ORDER BY server DESC, cell
