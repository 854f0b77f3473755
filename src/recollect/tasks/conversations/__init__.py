"""Chats of people or with an assistant, and questions about them: LoCoMo, LongMemEval, BEAM."""
