dist_params = dict(backend='nccl')
device = 'cuda'
log_level = 'INFO'
model = dict(type='Head', init_cfg=dict(checkpoint='cuda_r50.pth'))
