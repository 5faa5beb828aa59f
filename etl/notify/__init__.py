"""Who is told: callbacks, posts and mails. The only door to httpx and smtplib."""
