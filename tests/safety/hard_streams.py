"""Texts that are hard to cut: identifiers at sentence ends, over lines, spelled out, in other scripts, hidden."""

WITH_PII = [
    "Mail jane.doe@example.co.uk. Or call 510-555-0130.",
    "It is jane [at] example [dot] com, not john at example dot org.",
    "Card 4111 1111 1111 1111. Then 4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1!",
    "4111 1111\n1111 1111 on two lines\n2. next",
    "ja\u200bne@exa\u200bmple.com wrote. ｊａｎｅ＠ｅｘａｍｐｌｅ．ｃｏｍ too",
    "IBAN GB82 WEST 1234 5698 7654 32. Ok. From 9.22.22.222. Yes",
    "你好。请联系jane@example.com。谢谢！卡号4111111111111111。",
    "اتصل على +٤٤ ٢٠ ٧٩٤٦ ٠٩٥٨؟ نعم. شكرا",
    "SSN 460-89-9847? NI QQ 12 34 56 C. DNI 12345678-Z. X1234567L",
    "ring 510-555-0130 ext. 12. Phone:\n9472 7916\nFax: 020 7946 0958",
    "v6 6e40:4041:c617:e898:c11:40d2:c669:2eb4. Port 9.22.22.222:80. End",
    "+46 (0)8 928 571 38 and (510) 555-0130. (See below.) 86 095 742 719.",
]
WITHOUT = [
    'He paid 3.5 in the U.S. market. Dr. Smith said "no!" Then left... Why?! (Because.) Ok',
    "1. First item in 2024\n2. Second\n\n- a dash: yes\n",
    "Astronaut \U0001f9d1\u200d\U0001f680. \U0001f468\u200d\U0001f469\u200d\U0001f467 family! done",
    "Flag \U0001f3f4\U000e0067\U000e0062\U000e007f. Next",
    "   \n\n  \x00 \ud800. \ud83d. NaN",
    "",
]
