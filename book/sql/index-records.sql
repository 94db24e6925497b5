SELECT record, substr(started, 1, 10) AS 'day', substr(commit_hash, 1, 10) AS 'commit'
FROM records
WHERE EXISTS (SELECT 1 FROM summaries s WHERE s.record = records.record)
ORDER BY started
