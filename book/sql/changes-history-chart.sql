SELECT title || ' (' || tag || ')' AS 'version', ratio AS 'over axum', shape
FROM history
ORDER BY chapter_number, shape
