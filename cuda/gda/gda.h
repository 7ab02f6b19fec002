// SPDX-License-Identifier: Apache-2.0
// The device library: include this in a kernel. Which function is where, in reading order: put.h, strided.h, atomic.h,
// signal.h, message.h and datagram.h (what kernels call), collective.h (the same for warps and blocks), owner.h (for a
// queue's owner), wait.h (tickets), scope.h, submit.h and post.h (the work request), token.h and ring.h (doorbell and
// slots), poll.h (completions), target.h (what differs between a GPU and a CPU), handle.h and formats/ (what lies in
// memory).
#pragma once

#include <gda/atomic.h>
#include <gda/collective.h>
#include <gda/datagram.h>
#include <gda/message.h>
#include <gda/owner.h>
#include <gda/put.h>
#include <gda/signal.h>
#include <gda/strided.h>
