"""Questions among documents: HotpotQA, 2WikiMultihopQA, MuSiQue, SQuAD, and MemAgent's files."""
