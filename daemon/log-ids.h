/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which message it is: MESSAGE_ID= in the journal. What to do about it stands in systemd/hugezero.catalog and, with the fields
 * that it has, in hugezerod(8). A new one is made by "systemd-id128 new"; one that was released keeps its meaning.
 */
#pragma once

#define LOG_ID_STARTED        "ad3f5714955e41cbb7c8b685d471f9ee"
#define LOG_ID_POOL           "56ea9dffe38e4c7e8a45765def9e219d"
#define LOG_ID_ADOPTED        "613d24d6917540b396863242a0309474"
#define LOG_ID_DEFAULT_POOL   "6b0c9b2180d540cba94021f556a15521"
#define LOG_ID_STOPPED        "66c1f145fe5e4954a2d15d038730a84f"
#define LOG_ID_START_FAILED   "5b76914ab1a549e1a749e9d02029d238"
#define LOG_ID_CONFIG_INVALID "70693a4b954047afbae291b955225c78"
#define LOG_ID_RELOADED       "dc0e625d591749d8a02341216d045626"
#define LOG_ID_RELOAD_FAILED  "7586c30ea0b045adac20e7f0466c41c6"
#define LOG_ID_RESTART_NEEDED "324c5b24ed7d42d584723071d549014b"
#define LOG_ID_SHORT          "39116d6ddf884788be2edbedde6942d0"
#define LOG_ID_RECOVERED      "56c981a056ad4bc0aaa62a0006eea4e5"
#define LOG_ID_FILL_FAILED    "c4d5a7396ad14091ad70052a6b33728e"
#define LOG_ID_WATCH_FAILED   "3945862c010147bba152d1943e337e7e"
#define LOG_ID_FILES_LIMIT    "0d6363a47ff04ebfa4b3437c7bf10630"
#define LOG_ID_DOUBT          "4fe451cbdd0e4a1e9ed4cd7e6d875adf"
#define LOG_ID_UNLOCKED       "eeb2307aa04a4b3ba39a008f69f105b8"
#define LOG_ID_NOT_KEPT       "6f32de2079db4c5594e75b579ec296ec"
#define LOG_ID_EVENTS_LOST    "4f18e7afbb6640399ba58f0884c77cbd"
#define LOG_ID_ACCEPT_FAILED  "9223ed88bad6407ea2a4ba58dc182fcc"
#define LOG_ID_FDS_IN_FLIGHT  "f9d7e4bc07974ceeb5cc1699ed299c5b"
#define LOG_ID_CLIENT_CUT_OFF "9dba79b6fafd4bd3adefbc719793a5d1"
#define LOG_ID_CLIENT_REFUSED "c459486a3e23411aba42f582470763fc"
#define LOG_ID_LEDGER_VERSION "9fdb3907738249b8b5287ae5f0bc98a9"
#define LOG_ID_UNKNOWN_FD     "668c5aa2954d4c78a57ee96a64e8f765"
#define LOG_ID_LEFT_OUT       "1fe324531de649da999a84bd48bc710d"
#define LOG_ID_NOT_ZERO       "e0cdb556572f4590ade26064ef8c65d3"
#define LOG_ID_MEMORY_LOST    "970bee7ae12749f3aee289777c754ae3"
#define LOG_ID_CLEARING       "24c6bceacd544bc0ab3789c504414704"
#define LOG_ID_NO_METRICS     "4aa10e2b91e74ffbb42dafbb5e0fa0e4"
