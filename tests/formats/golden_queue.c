// SPDX-License-Identifier: Apache-2.0
// Golden bytes of the queue formats, written by rdma-core's own structs and functions (infiniband/mlx5dv.h), never by
// ours. golden.py compiles and runs this program; golden_queue.txt is what it prints.
// A record is: format, field=value ..., then bytes as `offset: hex`.
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static void emit(const char* format, const char* fields, const void* data, size_t bytes) {
    const unsigned char* p = data;
    printf("%s\n%s\n", format, fields);
    for (size_t at = 0; at < bytes; at += 32) {
        printf("%04zx: ", at);
        for (size_t i = at; i < bytes && i < at + 32; i++) printf("%02x", p[i]);
        printf("\n");
    }
    printf("\n");
}

static void work_requests(void) {
    struct mlx5_wqe_ctrl_seg ctrl;
    memset(&ctrl, 0, sizeof ctrl);
    mlx5dv_set_ctrl_seg(&ctrl, 0x1234, MLX5_OPCODE_RDMA_WRITE, 0, 0x00abcd, MLX5_WQE_CTRL_CQ_UPDATE, 3, 0, 0);
    emit("wqe_ctrl_seg", "wqe_index=0x1234 opcode=0x8 qp_or_sq=0xabcd ds=3 ce=2", &ctrl, sizeof ctrl);
    emit("send_doorbell", "wqe_index=0x1234 opcode=0x8 qpn=0xabcd ds=3", &ctrl, 8);

    memset(&ctrl, 0, sizeof ctrl);
    mlx5dv_set_ctrl_seg(&ctrl, 0xffff, MLX5_OPCODE_SEND_IMM, 0x7f, 0xffffff,
                        MLX5_WQE_CTRL_CQ_UPDATE | MLX5_WQE_CTRL_SOLICITED | MLX5_WQE_CTRL_FENCE, 63, 0xe1,
                        htobe32(0x11223344));
    emit("wqe_ctrl_seg",
         "opmod=0x7f wqe_index=0xffff opcode=0xb qp_or_sq=0xffffff ds=63 signature=0xe1 fm=4 ce=2 se=1 imm=0x11223344",
         &ctrl, sizeof ctrl);

    memset(&ctrl, 0, sizeof ctrl);
    mlx5dv_set_ctrl_seg(&ctrl, 1, MLX5_OPCODE_NOP, 0, 1, MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE, 1, 0, 0);
    ctrl.dci_stream_channel_id = htobe16(0x5a69);
    emit("wqe_ctrl_seg", "wqe_index=1 opcode=0 qp_or_sq=1 ds=1 dci_stream_channel_id=0x5a69 fm=1", &ctrl, sizeof ctrl);

    struct mlx5_wqe_raddr_seg raddr;
    memset(&raddr, 0, sizeof raddr);
    raddr.raddr = htobe64(0x7fdeadbeef001122ULL);
    raddr.rkey = htobe32(0x00180f37);
    emit("wqe_raddr_seg", "raddr=0x7fdeadbeef001122 rkey=0x180f37", &raddr, sizeof raddr);

    struct mlx5_wqe_data_seg data;
    mlx5dv_set_data_seg(&data, 0x7fffffff, 0x89abcdef, 0xfedcba9876543210ULL);
    emit("wqe_data_seg", "byte_count=0x7fffffff lkey=0x89abcdef addr=0xfedcba9876543210", &data, sizeof data);
    mlx5dv_set_data_seg(&data, 8, MLX5_INVALID_LKEY, 0x1000);
    emit("wqe_data_seg", "byte_count=8 lkey=0x100 addr=0x1000", &data, sizeof data);

    struct mlx5_wqe_inl_data_seg inl;
    inl.byte_count = htobe32(0x3ff | MLX5_INLINE_SEG);
    emit("wqe_inline_seg", "is_inline=1 byte_count=0x3ff", &inl, sizeof inl);

    struct mlx5_wqe_atomic_seg atomic;
    atomic.swap_add = htobe64(0x0102030405060708ULL);
    atomic.compare = htobe64(0x1112131415161718ULL);
    emit("wqe_atomic_seg", "swap_add=0x102030405060708 compare=0x1112131415161718", &atomic, sizeof atomic);

    struct mlx5_wqe_av av;
    memset(&av, 0, sizeof av);
    av.key.qkey.qkey = htobe32(0x11111111);
    av.dqp_dct = htobe32(0x80000000u | 0xfedcba);
    av.stat_rate_sl = 0x35;
    av.fl_mlid = 0x80 | 0x12;
    av.rlid = htobe16(0xc0de);
    memcpy(av.rmac, "\x02\x67\x64\x61\x00\x07", 6);
    av.tclass = 0x68;
    av.hop_limit = 64;
    av.grh_gid_fl = htobe32(1u << 30 | 3u << 20 | 0xabcde);
    memcpy(av.rgid, "\xfe\x80\x00\x00\x00\x00\x00\x01\x00\x67\x64\xff\xfe\x61\x00\x07", 16);
    emit("wqe_av_seg",
         "qkey=0x11111111 extended=1 dqp_dct=0xfedcba stat_rate=3 sl=5 fl=1 mlid=0x12 rlid_udp_sport=0xc0de "
         "rmac_47_16=0x2676461 rmac_15_0=0x7 tclass=0x68 hop_limit=0x40 grh=1 src_addr_index=3 flow_label=0xabcde "
         "rgid=bytes:fe80000000000001006764fffe610007",
         &av, sizeof av);

    memset(&av, 0, sizeof av);
    av.key.dc_key = htobe64(0x1122334455667788ULL);
    emit("wqe_dc_av_seg", "dc_key=0x1122334455667788", &av, sizeof av);

    // The public header lacks it: as rdma-core declares it for itself (providers/mlx5/wqe.h).
    struct mlx5_wqe_xrc_seg {
        __be32 xrc_srqn;
        uint8_t rsvd[12];
    } xrc;
    memset(&xrc, 0, sizeof xrc);
    xrc.xrc_srqn = htobe32(0x00abcdef);
    emit("wqe_xrc_seg", "xrc_srqn=0xabcdef", &xrc, sizeof xrc);

    struct mlx5_wqe_umr_ctrl_seg umr;
    memset(&umr, 0, sizeof umr);
    umr.flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE | MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE;
    umr.klm_octowords = htobe16(0x1234);
    umr.bsf_octowords = htobe16(0x5678);
    umr.mkey_mask = htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN |
                            MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE |
                            MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR);
    emit("wqe_umr_ctrl_seg",
         "is_inline=1 check_free=1 klm_octowords=0x1234 bsf_octowords=0x5678 mask_free=1 mask_len=1 mask_mkey=1 "
         "mask_rw=1 mask_lw=1 mask_sigerr_count=1",
         &umr, sizeof umr);
    memset(&umr, 0, sizeof umr);
    umr.flags = MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET | MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN;
    umr.mkey_mask = htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR | MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE |
                            MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
                            MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC);
    emit("wqe_umr_ctrl_seg",
         "translation_offset_en=1 check_qpn=1 mask_start_addr=1 mask_bsf_en=1 mask_qpn=1 mask_rr=1 mask_a=1", &umr,
         sizeof umr);

    struct mlx5_wqe_umr_klm_seg klm = {htobe32(0x80000000u), htobe32(0x00123456), htobe64(0x7f00aabbccdd0011ULL)};
    emit("wqe_umr_klm_seg", "byte_count=0x80000000 mkey=0x123456 address=0x7f00aabbccdd0011", &klm, sizeof klm);
    struct mlx5_wqe_umr_repeat_block_seg block;
    memset(&block, 0, sizeof block);
    block.byte_count = htobe32(0x01020304);
    block.op = htobe32(0x400);
    block.repeat_count = htobe32(0x05060708);
    block.num_ent = htobe16(0x090a);
    emit("wqe_umr_repeat_block_seg", "byte_count=0x1020304 op=0x400 repeat_count=0x5060708 num_ent=0x90a", &block,
         sizeof block);
    struct mlx5_wqe_umr_repeat_ent_seg entry = {htobe16(0x1122), htobe16(0x3344), htobe32(0x55667788),
                                                htobe64(0x99aabbccddeeff00ULL)};
    emit("wqe_umr_repeat_ent_seg", "stride=0x1122 byte_count=0x3344 memkey=0x55667788 va=0x99aabbccddeeff00", &entry,
         sizeof entry);

    struct mlx5_wqe_srq_next_seg next;
    memset(&next, 0, sizeof next);
    next.next_wqe_index = htobe16(0xbeef);
    next.signature = 0x77;
    emit("wqe_srq_next_seg", "next_wqe_index=0xbeef signature=0x77", &next, sizeof next);
}

static void completions(void) {
    struct mlx5_cqe64 cqe;
    memset(&cqe, 0, sizeof cqe);
    cqe.sop_drop_qpn = htobe32((uint32_t)MLX5_OPCODE_RDMA_WRITE << 24 | 0x123456);
    cqe.wqe_counter = htobe16(0xfffe);
    cqe.op_own = MLX5_CQE_REQ << 4 | MLX5_CQE_OWNER_MASK;
    emit("cqe64", "sop_drop_qpn_opcode=8 qpn=0x123456 wqe_counter=0xfffe opcode=0 owner=1", &cqe, sizeof cqe);

    memset(&cqe, 0, sizeof cqe);
    cqe.wqe_id = htobe16(0x4142);
    cqe.ml_path = 0x43;
    cqe.slid = htobe16(0x4445);
    cqe.flags_rqpn = htobe32(3u << 28 | 0xau << 24 | 0x464748);
    cqe.hds_ip_ext = 0x49;
    cqe.l4_hdr_type_etc = 0x4a;
    cqe.vlan_info = htobe16(0x4b4c);
    cqe.srqn_uidx = htobe32(0x4d4e4f50);
    cqe.imm_inval_pkey = htobe32(0x51525354);
    cqe.app = 0x55;
    cqe.app_op = 0x56;
    cqe.app_info = htobe16(0x5758);
    cqe.byte_cnt = htobe32(0x595a5b5c);
    cqe.timestamp = htobe64(0x6162636465666768ULL);
    cqe.sop_drop_qpn = htobe32(0x696a6b6c);
    cqe.wqe_counter = htobe16(0x6d6e);
    cqe.signature = 0x6f;
    cqe.op_own = MLX5_CQE_RESP_SEND_IMM << 4 | MLX5_INLINE_SCATTER_64 | 1 << 1;
    emit("cqe64",
         "wqe_id=0x4142 ml_path=0x43 slid=0x4445 grh=3 sl=10 rqpn=0x464748 hds_ip_ext=0x49 l4_hdr_type_etc=0x4a "
         "vlan_info=0x4b4c srqn_uidx=0x4d4e4f50 imm_inval_pkey=0x51525354 app=0x55 app_op=0x56 app_info=0x5758\n"
         "byte_cnt=0x595a5b5c timestamp=0x6162636465666768 sop_drop_qpn_opcode=0x69 qpn=0x6a6b6c wqe_counter=0x6d6e "
         "signature=0x6f opcode=3 cqe_format=2 se=1",
         &cqe, sizeof cqe);

    struct mlx5_err_cqe err;
    memset(&err, 0, sizeof err);
    err.srqn = htobe32(0x00abcdef);
    err.rsvd1[16] = 0x1d;  // named hw_error_syndrome by the kernel, and the high half of the next one hw_syndrome_type
    err.rsvd1[17] = 0x40;
    err.vendor_err_synd = 0x88;
    err.syndrome = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
    err.s_wqe_opcode_qpn = htobe32((uint32_t)MLX5_OPCODE_RDMA_READ << 24 | 0xfedcba);
    err.wqe_counter = htobe16(0x0102);
    err.signature = 0x99;
    err.op_own = MLX5_CQE_REQ_ERR << 4;
    emit("err_cqe",
         "srqn_uidx=0xabcdef hw_error_syndrome=0x1d hw_syndrome_type=4 vendor_error_syndrome=0x88 syndrome=0x13 "
         "s_wqe_opcode=0x10\nqpn=0xfedcba wqe_counter=0x102 signature=0x99 opcode=13",
         &err, sizeof err);
}

static void doorbells(void) {
    uint32_t record[2] = {0, 0};
    record[MLX5_RCV_DBR] = htobe32(0x8081);
    record[MLX5_SND_DBR] = htobe32(0x9091);
    emit("qp_doorbell_record", "receive_counter=0x8081 send_counter=0x9091", record, sizeof record);

    // Arming as libmlx5 does it: the same dword in the record and in the register, the queue's number behind it.
    uint32_t arm = htobe32(2u << 28 | MLX5_CQ_DB_REQ_NOT_SOL | 0x123456);
    uint32_t cq_record[2] = {htobe32(0xabcdef), arm};
    emit("cq_doorbell_record", "consumer_index=0xabcdef cmd_sn=2 solicited_only=1 armed_index=0x123456", cq_record,
         sizeof cq_record);
    uint32_t cq_doorbell[2] = {arm, htobe32(0x789abc)};
    emit("cq_doorbell", "cmd_sn=2 solicited_only=1 consumer_index=0x123456 cqn=0x789abc", cq_doorbell,
         sizeof cq_doorbell);
}

int main(void) {
    work_requests();
    completions();
    doorbells();
    return 0;
}
